"""multi_tower: multi_tower_din without towers over histories."""

from exporter.models.rank.multi_tower_din import build_served as build_served
from exporter.models.rank.multi_tower_din import build_trained as build_trained
