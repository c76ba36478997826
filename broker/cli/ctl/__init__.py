"""`warrenmq ctl`: what rabbitmqctl, rabbitmq-queues and rabbitmq-diagnostics do, over HTTP."""
