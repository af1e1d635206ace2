"""Read the dense embedding of a feature of plain numbers, from its `dense_emb`."""

from exporter.config.blocks.dense_embedding import DenseEmbeddingConfig, LinearEmbeddingConfig, read_autodis
from exporter.config.features.feature_messages import FeatureSource
from exporter.config.features.table_rows import IdMessage, NumberMessage
from exporter.config.pb.feature_kinds_pb2 import TokenizeFeature


def read_dense_embedding(source: FeatureSource, value_dim: int) -> DenseEmbeddingConfig | None:
    """Return the embedding of plain numbers, `value_dim` of them; None where there is none or it is ignored.

    Raises:
        InvalidPipelineConfig: TorchEasyRec could not compute it.
    """
    message = source.message
    if isinstance(message, IdMessage | TokenizeFeature) or (kind := message.WhichOneof("dense_emb")) is None:
        return None
    dim = message.embedding_dim
    if source.is_sequence:
        # TorchEasyRec never embeds them, but counts some kinds as if they had the embedding's width.
        if not isinstance(message, NumberMessage) and dim != value_dim:
            source.raise_invalid(
                f"{kind} gives width {dim} to a sequence of {value_dim} numbers per element, which "
                "TorchEasyRec does not embed",
                hint=f"remove {kind}: a dense embedding is for features of one element per row",
            )
        return None
    if dim == 0:
        source.raise_invalid(f"{kind} has no width", hint="set embedding_dim to more than 0")
    if kind == "mlp":
        return LinearEmbeddingConfig(dim=dim, value_dim=value_dim)
    if value_dim > 1:
        source.raise_invalid(
            f"autodis is for one number, and value_dim is {value_dim}", hint="use mlp, or set value_dim to 1"
        )
    if message.autodis.num_channels == 0 or message.autodis.temperature <= 0:
        source.raise_invalid(
            "autodis needs channels and a temperature", hint="set num_channels and temperature to more than 0"
        )
    return read_autodis(message.autodis, dim)
