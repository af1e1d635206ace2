"""ultra_hstu: dlrm_hstu over the vectors of several transducers."""

from exporter.models.multi_task.dlrm_hstu import build_served as build_served
from exporter.models.multi_task.dlrm_hstu import build_trained as build_trained
