"""The one exception that people meet: a sentence that says what was wrong, where, what to do."""


class UserError(Exception):
    """Something the user can put right. Shown without a traceback; the command exits with 2."""
