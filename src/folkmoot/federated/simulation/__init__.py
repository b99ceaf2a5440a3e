"""Thousands of participants on one machine: the real coordinator and codec, virtual participants.

A bounded pool of processes runs them, each many: every one with its own key, its own requests and
its own updates. Keys, selections and the order of sums follow from one seed, so with participants
that draw from their own number the same command ends with the same bits.
"""
