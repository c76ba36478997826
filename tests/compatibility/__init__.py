"""Which of RabbitMQ 3.13's behaviour holds here, and the test that says so: docs/compatibility.md.

`rows` lists the behaviour; a test that proves a row names it in its docstring, in a paragraph
`Rows: 1.4 per-queue TTL; 1.4 TTL 0`. `python -m tests.compatibility` writes the page from both.
"""
