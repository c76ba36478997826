"""What a job found, as text for terminals and as one HTML file with charts.

`document` holds it, `charts` draws SVG, `page` makes the file; all pure, of the standard library.
"""
