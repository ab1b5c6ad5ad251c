"""Run a fleet's jobs in a worker: each is an HTTP request whose answer is the job's events."""
