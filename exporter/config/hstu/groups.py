"""Feature groups that the HSTU encoder reads, and what each must hold."""

from exporter.config.features.group_checks import GroupChecks
from exporter.config.hstu.encoder import CONTEXTUAL, HstuConfig
from exporter.config.refusals import raise_invalid
from exporter.config.schema import GroupKind
from exporter.errors import UnsupportedConfig
from exporter.redaction import name_first


class HstuGroupChecks(GroupChecks):
    """Checks of a config's groups that the HSTU families share."""

    def refuse_padding(self) -> None:
        """Refuse groups that pad sequences or encode them: no HSTU model reads those.

        Raises:
            UnsupportedConfig: naming the group.
        """
        for group in self.groups:
            if group.encoders:
                raise UnsupportedConfig(
                    f"group {group.name} has sequence encoders, and HSTU models are exported without them",
                    hint="train without sequence_groups and sequence_encoders",
                    where=f"feature_groups: {group.name}",
                )
            padded = [feature.name for feature in self.members(group.name) if feature.is_sequence]
            if group.kind is GroupKind.SEQUENCE and group.name != CONTEXTUAL and padded:
                raise UnsupportedConfig(
                    f"group {group.name} pads {name_first(padded)}, and no HSTU model reads padded sequences",
                    hint="use group_type JAGGED_SEQUENCE, or delete the group",
                    where=f"feature_groups: {group.name}",
                )

    def require_history(self, hstu: HstuConfig) -> None:
        """Refuse a config without the groups of the user's events: their content, times and actions."""
        name, encoder = hstu.history, hstu.preprocessor.action_encoder
        self.require_sequences(name, "the user's history")
        self.require_number(f"{name}_timestamp", "the times of the history", GroupKind.JAGGED_SEQUENCE)
        if encoder is not None:
            self.require_number(f"{name}_action", "action_encoder", GroupKind.JAGGED_SEQUENCE)
        if encoder is not None and encoder.watchtime_thresholds:
            self.require_number(
                f"{name}_watchtime", "watchtime_to_action_thresholds", GroupKind.JAGGED_SEQUENCE
            )

    def check_contextual(self, hstu: HstuConfig, *, concatenated: bool = False) -> None:
        """Refuse a group `contextual` whose features cannot stand in front of the history.

        Each feature is one element; all of them together are one where they are `concatenated`.
        """
        elements = 1 if concatenated else len(self.members(CONTEXTUAL)) if self.has_group(CONTEXTUAL) else 0
        self._check_elements(elements, hstu)
        if not self.has_group(CONTEXTUAL):
            self._refuse_lone_mlps(hstu)
            return
        where = f"feature_groups: {CONTEXTUAL}"
        kind = self.group(CONTEXTUAL).kind
        if kind not in (GroupKind.DEEP, GroupKind.SEQUENCE):
            raise_invalid(where, f"group_type is {kind}", hint="use DEEP or SEQUENCE: one vector per feature")
        if kind is GroupKind.SEQUENCE:
            self._refuse_sequences(where)
        widths = {feature.name: feature.width for feature in self.members(CONTEXTUAL)}
        if len(set(widths.values())) > 1 and not concatenated:
            shown = ", ".join(f"{name} {width}" for name, width in widths.items())
            hint = "give all of them one embedding_dim"
            raise_invalid(where, f"its features differ in width: {shown}", hint=hint)

    def _check_elements(self, elements: int, hstu: HstuConfig) -> None:
        """Refuse more elements of context than there are positions, or fewer than truncation keeps."""
        positions = hstu.positional_encoder
        if positions is not None and positions.num_position_buckets < elements:
            raise_invalid(
                f"feature_groups: {CONTEXTUAL}",
                f"{elements} features do not fit into num_position_buckets {positions.num_position_buckets}",
                hint="train with at least as many position buckets as features",
            )
        if hstu.attn_truncation_tail_len and hstu.stu.contextual_seq_len > elements:
            raise_invalid(
                self.where,
                f"truncation would keep contextual_seq_len {hstu.stu.contextual_seq_len} elements of "
                f"context, and there are {elements}",
                hint="leave contextual_seq_len out, or truncate nothing",
            )

    def _refuse_lone_mlps(self, hstu: HstuConfig) -> None:
        mlps = [hstu.preprocessor.action_mlp, getattr(hstu.preprocessor, "content_mlp", None)]
        if any(mlp is not None and mlp.parameterized for mlp in mlps):
            raise_invalid(
                self.where,
                "parameterized_mlp needs a group named contextual",
                hint="add the group it was trained with",
            )

    def _refuse_sequences(self, where: str) -> None:
        for feature in self.members(CONTEXTUAL):
            if feature.is_sequence:
                raise_invalid(
                    where,
                    f"{feature.name} is a sequence",
                    hint="contextual features have one vector per row",
                )
