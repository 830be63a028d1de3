"""From a task to a posterior: choose, build, train."""
