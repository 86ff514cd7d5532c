"""Self-attention whose queries, keys and values are prepared before they meet: given shares of the
embeddings, brought to one length, turned by their places."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from albertine.model.block import AttentionBlock
from albertine.model.config import QK_SCALE, EncoderConfig
from albertine.model.input_injection import injected
from albertine.model.rows import Rows


class PreparedAttentionBlock(AttentionBlock):
    """With input injection, QK-norm and rotary positions, each where the configuration has it."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.qk_norm = config.qk_norm

    def projected(
        self, x_RH: Tensor, context_TH: Tensor, queries: Rows, keys: Rows
    ) -> tuple[Tensor, Tensor, Tensor]:
        q_RND, k_TND, v_TND = super().projected(x_RH, context_TH, queries, keys)
        q_RND, k_TND, v_TND = injected((q_RND, k_TND, v_TND), queries, keys)
        if self.qk_norm:
            q_RND, k_TND = (F.rms_norm(y, y.shape[-1:]) for y in (q_RND, k_TND))
            q_RND = q_RND * (QK_SCALE * self.head_size**0.5)  # the kernels divide by √D
        if queries.rotation is not None:
            q_RND, k_TND = queries.rotation.turn(q_RND), keys.rotation.turn(k_TND)  # type: ignore[union-attr]
        return q_RND, k_TND, v_TND
