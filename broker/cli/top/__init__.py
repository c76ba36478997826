"""`warrenmq top`: the cluster in a terminal, as `top` shows processes.

view       what is shown and what a key changes           `view`, pure
samples    asked of one node's HTTP API, of the next one when it is gone    `samples`
frame      a sample and a view as a picture of so many columns and lines    `frame`, pure
terminal   keys come in, frames go out                    `commands`
"""
