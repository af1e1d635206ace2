"""dssm_v2: the towers of dssm, over tables that lie beside them."""

from exporter.models.match.dssm import build_served as build_served
from exporter.models.match.dssm import build_trained as build_trained
