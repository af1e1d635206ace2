"""dat: the towers of dssm, each over two groups."""

from exporter.models.match.dssm import build_served as build_served
from exporter.models.match.dssm import build_trained as build_trained
