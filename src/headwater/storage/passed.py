"""How far a walk over postings got without a match: a number of its own kind among those that match."""


class Passed(int):
    """Among the numbers of a walk: no match, but how far it has looked without one. Nothing below it is left."""
