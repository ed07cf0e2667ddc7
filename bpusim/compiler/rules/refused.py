"""Ops of the standard set without a rule, and why."""

from __future__ import annotations

__all__ = ["FRONT_END", "REFUSED"]

FRONT_END = {
    "Constant": "a stored tensor",
    "ConstantOfShape": "a stored tensor of a known shape",
    "Shape": "worked out before the run",
    "Size": "worked out before the run",
    "If": "a graph inside",
    "Loop": "a graph inside",
    "Scan": "a graph inside",
    "SequenceMap": "a graph inside",
    "Range": "as many results as the bounds say",
    "NonZero": "as many results as the data say",
    "NonMaxSuppression": "as many results as the data say",
    "Compress": "as many results as the data say",
    "Unique": "as many results as the data say",
}
"""Ops that the front end takes apart before any rule: constants, inner graphs, results of unknown length."""

_TRAINING = "which trains: cut it off with --until"
_SEQUENCE = "whose results are lists of tensors"
_TEXT = "which works on text"
_DENSE = "whose work does not follow from the sizes of its results"
_CLASSIC = "whose work is in tables of its attributes"

REFUSED: dict[str, str] = {
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), _TRAINING),
    **dict.fromkeys(("Adagrad", "Adam", "Gradient", "Momentum"), _TRAINING),
    **dict.fromkeys(
        (
            "ConcatFromSequence",
            "SequenceAt",
            "SequenceConstruct",
            "SequenceEmpty",
            "SequenceErase",
            "SequenceInsert",
            "SequenceLength",
            "SplitToSequence",
            "Optional",
            "OptionalGetElement",
            "OptionalHasElement",
        ),
        _SEQUENCE,
    ),
    **dict.fromkeys(
        ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"),
        _TEXT,
    ),
    "ImageDecoder": "which reads an encoded image",
    "FlexAttention": "which has graphs inside",
    **dict.fromkeys(
        (
            "SparseAttention",
            "LongformerAttention",
            "PagedAttention",
            "DecoderAttention",
            "DecoderMaskedSelfAttention",
            "DynamicQuantizeLSTM",
            "MatMulFpQ4",
            "BeamSearch",
            "GreedySearch",
            "Sampling",
            "WhisperBeamSearch",
        ),
        _DENSE,
    ),
    **dict.fromkeys(
        (
            "TreeEnsemble",
            "TreeEnsembleClassifier",
            "TreeEnsembleRegressor",
            "SVMClassifier",
            "SVMRegressor",
            "LinearClassifier",
            "LinearRegressor",
        ),
        _CLASSIC,
    ),
}
"""Ops that are refused, with the reason; it ends the message ``no cost rule for ...``."""
