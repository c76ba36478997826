"""The management API and page: RabbitMQ's endpoints, one file per resource."""
