"""Handwritten digits, dealt fairly, and the SVM that is tuned to them."""

from __future__ import annotations

import numpy as np
import pytest

from fedbo_paper.problems import digits

PARAMS = {"C": 10.0, "gamma": 0.05, "contrast": 1.0, "cutoff": 0.0, "blur": 0.0}


class TestDigits:
    @pytest.mark.parametrize("agents", [1, 2, 10, digits.MOST])
    def test_every_image_is_dealt_once(self, agents: int) -> None:
        hands = digits.deal(agents, seed=3)
        X = np.concatenate([hand.pixels for hand in hands])
        everything = digits.deal(1, seed=0)[0].pixels
        assert np.array_equal(np.sort(X, axis=0), np.sort(everything, axis=0))
        assert sum(hand.counts for hand in hands).sum() == digits.IMAGES

    def test_uneven_in_size_and_in_mix(self) -> None:
        hands = digits.deal(10, seed=0)
        sizes = [len(hand) for hand in hands]
        assert max(sizes) > 7 * min(sizes)
        shares = np.array([hand.counts / len(hand) for hand in hands])
        # with the same mix for all, the largest share of a digit would be near 0.1 everywhere
        assert np.median(shares.max(axis=1)) > 0.2

    def test_score_is_the_accuracy_on_the_other_half(self) -> None:
        from sklearn.svm import SVC

        hand = digits.deal(digits.MOST, seed=0)[0]
        train, validate = hand.halves
        assert set(train) | set(validate) == set(range(len(hand)))
        assert not set(train) & set(validate)
        svm = SVC(C=10.0, gamma=0.05).fit(hand.pixels[train], hand.digits[train])
        assert hand(PARAMS) == svm.score(hand.pixels[validate], hand.digits[validate])
