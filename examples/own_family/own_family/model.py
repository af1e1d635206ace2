"""torchrec's DeepFM as a module from a dict of tensors to a dict of tensors."""

import torch
from torch import Tensor, nn
from torchrec.models.deepfm import SimpleDeepFMNN
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

TABLE_ROWS = {"user_id": 500, "movie_id": 1000, "genre": 20}
DENSE = 3


class DeepFmTower(nn.Module):
    """Predicts the `probability` (B,) that each row's user likes its movie."""

    def __init__(self, *, dim: int, hidden: int) -> None:
        super().__init__()
        tables = [
            EmbeddingBagConfig(
                name=f"{feature}_table", feature_names=[feature], num_embeddings=rows, embedding_dim=dim
            )
            for feature, rows in TABLE_ROWS.items()
        ]
        self.deepfm = SimpleDeepFMNN(
            num_dense_features=DENSE,
            embedding_bag_collection=EmbeddingBagCollection(tables=tables),
            hidden_layer_size=hidden,
            deep_fm_dimension=dim,
        )

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        one_each = torch.ones_like(inputs["user_id"])
        features = KeyedJaggedTensor(
            keys=list(TABLE_ROWS),
            values=torch.cat([inputs["user_id"], inputs["movie_id"], inputs["genre.values"]]),
            lengths=torch.cat([one_each, one_each, inputs["genre.lengths"]]),
        )
        return {"probability": self.deepfm(inputs["dense"], features).squeeze(1)}
