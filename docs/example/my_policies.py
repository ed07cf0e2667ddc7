"""A policy of one's own: any class with ``pick``. No base class, no registry."""


class ShortestFirst:
    """The call with the least work left."""

    def pick(self, ready, core):
        return min(ready, key=lambda c: (c.estimate_ps, c.submitted_ps, c.seq))
