"""`warrenmq_pipeline.zip`: what Spark's workers need of us, for `spark-submit --py-files`.

It is pure Python: `pipeline/`, `pyspark_amqp_stream.py`, by which Spark finds the data source, and
`typing_extensions.py` as it is installed here, the one module beside PySpark and PyArrow that
they import.
"""

from __future__ import annotations

import inspect
import shutil
import zipfile
from pathlib import Path

import typing_extensions

NAME = "warrenmq_pipeline.zip"
FOLDER = Path(__file__).parents[1]
"""What holds our package: a folder, or the zip file itself where Python runs from it."""

_SOURCE = "pyspark_amqp_stream.py"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


def build(folder: Path) -> Path:
    """Write the zip file; the same sources make the same bytes.

    Args:
        folder: Where to; made if it is not there.

    Returns:
        The file, `NAME` in the folder.

    Raises:
        OSError: It can't be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / NAME
    if FOLDER.is_file():
        return Path(shutil.copy(FOLDER, target))
    files = {str(file.relative_to(FOLDER)): file for file in FOLDER.glob("pipeline/**/*.py")}
    files[_SOURCE] = FOLDER / _SOURCE
    files["typing_extensions.py"] = Path(inspect.getfile(typing_extensions))
    with zipfile.ZipFile(target, "w") as archive:
        for name, file in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return target
