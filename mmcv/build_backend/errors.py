"""The one kind of error that a user sees: a single message, without a traceback."""


class BuildError(Exception):
    """What is wrong, what was found, and what to do about it."""
