"""Measures of a ranking model's answers against labels, each with its rows' influences.

N rows, G groups, C classes. Weights, where there are any, count a row as that many rows.
"""

import numpy as np
from numpy.typing import NDArray

from exporter.release.estimates import Array, Codes, Estimate

_LOWEST_LOG = -100.0  # as torch's binary cross entropy bounds its logarithms
_TENTHS = 10


def auc(answers_N: Array, labels_N: Array, weights_N: Array) -> Estimate | None:
    """Return the area under the ROC curve, exactly: the share of pairs in order, ties counting half.

    The influences are the placements of each row among the other class, after DeLong. None if all labels are
    equal.
    """
    positive = labels_N > 0
    of_positive, of_negative = np.where(positive, weights_N, 0.0), np.where(positive, 0.0, weights_N)
    total_positive, total_negative = of_positive.sum(), of_negative.sum()
    if not total_positive or not total_negative:
        return None
    negative_below = _share_below(answers_N, of_negative) / total_negative
    positive_above = 1 - _share_below(answers_N, of_positive) / total_positive
    value = float((of_positive * negative_below).sum() / total_positive)
    influence = np.where(
        positive,
        of_positive * (negative_below - value) / total_positive,
        of_negative * (positive_above - value) / total_negative,
    )
    return Estimate(value=value, influence=influence * len(labels_N))


def _share_below(answers_N: Array, weights_N: Array) -> Array:
    """Return for each row the weight of the rows with smaller answers, and half of that with equal ones."""
    (
        _,
        place,
    ) = np.unique(answers_N, return_inverse=True)
    at_value = np.bincount(place, weights=weights_N)
    below: Array = (np.cumsum(at_value) - at_value / 2)[place]
    return below


def grouped_auc(answers_N: Array, labels_N: Array, groups_N: Codes) -> Estimate | None:
    """Return the mean AUC of the groups that have both labels, every group counting the same.

    That is TorchEasyRec's `grouped_auc` (tzrec/metrics/grouped_auc.py), which weighs neither rows nor
    groups. The influences are those of groups, one per group; None if no group has both labels.
    """
    values = auc_by_group(answers_N, labels_N, groups_N)
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    value = float(known.mean())
    return Estimate(value=value, influence=known - value)


def auc_by_group(answers_N: Array, labels_N: Array, groups_N: Codes) -> Array:
    """Return the AUC of each group, in the order of their codes; NaN where all labels are equal."""
    order = np.lexsort((answers_N, groups_N))
    answers, labels, groups = answers_N[order], labels_N[order] > 0, groups_N[order]
    starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
    of_group = np.cumsum(np.r_[False, groups[1:] != groups[:-1]])
    new_value = np.r_[True, (groups[1:] != groups[:-1]) | (answers[1:] != answers[:-1])]
    of_value = np.cumsum(new_value) - 1
    counts = np.bincount(of_value)
    last = np.cumsum(counts)
    mean_rank = (last - (counts - 1) / 2)[of_value] - starts[of_group]  # from 1, within the group
    positives = np.bincount(of_group, weights=labels)
    negatives = np.bincount(of_group) - positives
    ranks = np.bincount(of_group, weights=mean_rank * labels)
    with np.errstate(divide="ignore", invalid="ignore"):
        values: Array = (ranks - positives * (positives + 1) / 2) / (positives * negatives)
    return np.where((positives > 0) & (negatives > 0), values, np.nan)


def normalised_entropy(answers_N: Array, labels_N: Array, weights_N: Array) -> Estimate | None:
    """Return the mean cross entropy over that of the mean label: below 1 is better than a constant.

    As TorchEasyRec's `normalized_entropy` and TorchRec's NE. None if all labels are equal.
    """
    total = weights_N.sum()
    mean = float((weights_N * labels_N).sum() / total)
    if not 0 < mean < 1:
        return None
    with np.errstate(divide="ignore"):
        log_yes, log_no = np.log(answers_N), np.log1p(-answers_N)
    entropy_N = -(
        labels_N * np.maximum(log_yes, _LOWEST_LOG) + (1 - labels_N) * np.maximum(log_no, _LOWEST_LOG)
    )
    entropy = float((weights_N * entropy_N).sum() / total)
    of_mean = -(mean * np.log(mean) + (1 - mean) * np.log(1 - mean))
    value = entropy / of_mean
    slope = np.log((1 - mean) / mean)  # of the mean label's entropy
    change = (entropy_N - entropy) - value * slope * (labels_N - mean)
    return Estimate(value=float(value), influence=_of_mean(change / of_mean, weights_N))


def calibration(answers_N: Array, labels_N: Array, weights_N: Array) -> Estimate | None:
    """Return the mean answer over the mean label: 1 is perfect. None if the mean label is 0."""
    total = weights_N.sum()
    answer, label = float((weights_N * answers_N).sum() / total), float((weights_N * labels_N).sum() / total)
    if label <= 0:
        return None
    value = answer / label
    return Estimate(value=value, influence=_of_mean((answers_N - value * labels_N) / label, weights_N))


def calibration_error(answers_N: Array, labels_N: Array, weights_N: Array) -> Estimate | None:
    """Return the mean distance of answer and label in tenths of the rows by answer, over the mean label.

    None if the mean label is 0.
    """
    total = weights_N.sum()
    label = float((weights_N * labels_N).sum() / total)
    if label <= 0:
        return None
    tenth = _tenths(answers_N)
    gap = np.bincount(tenth, weights=weights_N * (answers_N - labels_N), minlength=_TENTHS)
    value = float(np.abs(gap).sum() / total / label)
    change = np.sign(gap)[tenth] * (answers_N - labels_N) / label - value
    return Estimate(value=value, influence=_of_mean(change, weights_N))


def _tenths(answers_N: Array) -> NDArray[np.int64]:
    """Return the tenth of each row by its answer; equal answers are in one tenth."""
    edges = np.quantile(answers_N, np.arange(1, _TENTHS) / _TENTHS)
    return np.searchsorted(edges, answers_N, side="left").astype(np.int64)


def mean_error(errors_N: Array, weights_N: Array) -> Estimate:
    """Return the weighted mean of something that each row has: an error, or whether an answer was right."""
    value = float((weights_N * errors_N).sum() / weights_N.sum())
    return Estimate(value=value, influence=_of_mean(errors_N - value, weights_N))


def _of_mean(change_N: Array, weights_N: Array) -> Array:
    """Return the influences of rows on a weighted mean of `change`."""
    scaled: Array = change_N * weights_N * (len(weights_N) / weights_N.sum())
    return scaled
