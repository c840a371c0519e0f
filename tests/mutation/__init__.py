"""Do the tests of the shipped packs notice when a rule is changed? Rules are mutated one place at a time.

    python -m tests.mutation                   # all packs; exit status 1 below 95 %
    python -m tests.mutation RewardCrash       # one rule

Our own tool, no part of the product: what it asks of is `rules/packs/tests`.
"""
