"""The one exception that people meet: a sentence that says what was wrong, where, what to do."""


class UserError(Exception):
    """Something the user can put right. Shown without a traceback; the command exits with 2."""


def quoted(value: object) -> str:
    """A value of the user's within a sentence: on one line, and cut when it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python spells out no number of more than 4,300 digits
        return "a giant number"
    return text if len(text) <= 80 else f"{text[:60]}…"
