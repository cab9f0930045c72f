"""A clock that tests move."""


class Clock:
    """Seconds that go forward when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s
