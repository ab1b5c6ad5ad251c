"""Work on what strangers wrote, in child processes with limits of time, memory and system calls."""
