"""The worker daemon: a fleet's jobs, each an HTTP request whose answer is the job's events."""
