"""Prices of terms by chance: the cheapest term is one of many, and any of them has to be right."""

import random


def by_chance(seed):
    """A price for each term of each class, by its place: some are a million times another."""

    def costs(table, actual):
        places = {
            (c, node): (c, k) for c, nodes in actual.classes.items() for k, node in enumerate(nodes)
        }
        return lambda c, node: (
            1e6 ** random.Random(f"{seed} {places.get((c, node), node)}").random()
        )

    return costs
