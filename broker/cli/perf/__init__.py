"""`warrenmq perf`: a load generator with rabbitmq-perf-test's letters and its output line.

It speaks just enough AMQP for load, by hand and apart from `broker.amqp`: a bug of the codec must
not cancel itself out, and building a message costs the generator next to nothing.
"""
