"""Every model family that Slipway exports, by the name of its message in model_config.

A new family is imported and listed here, and nowhere else; docs/add-a-torcheasyrec-family.md is the recipe.
"""

from collections.abc import Mapping
from typing import Any

from exporter.config.families.family_spec import FamilySpec
from exporter.config.families.match import dat, dssm, dssm_v2, hstu_match, mind, tdm
from exporter.config.families.multi_task import dbmtl, dc2vr, dlrm_hstu, mmoe, pepnet, ple, ultra_hstu
from exporter.config.families.rank import (
    dcn_v1,
    dcn_v2,
    deepfm,
    dlrm,
    mask_net,
    multi_tower,
    multi_tower_din,
    rocket_launching,
    wide_and_deep,
    wukong,
    xdeepfm,
)
from exporter.config.families.sid import sid_rqkmeans, sid_rqvae

FAMILIES: Mapping[str, FamilySpec[Any]] = {
    family.message: family
    for family in (
        hstu_match.FAMILY,
        dlrm_hstu.FAMILY,
        dssm.FAMILY,
        dssm_v2.FAMILY,
        tdm.FAMILY,
        dat.FAMILY,
        mind.FAMILY,
        multi_tower_din.FAMILY,
        multi_tower.FAMILY,
        wide_and_deep.FAMILY,
        deepfm.FAMILY,
        xdeepfm.FAMILY,
        dlrm.FAMILY,
        wukong.FAMILY,
        dbmtl.FAMILY,
        dcn_v1.FAMILY,
        dcn_v2.FAMILY,
        mask_net.FAMILY,
        rocket_launching.FAMILY,
        mmoe.FAMILY,
        ple.FAMILY,
        pepnet.FAMILY,
        dc2vr.FAMILY,
        ultra_hstu.FAMILY,
        sid_rqvae.FAMILY,
        sid_rqkmeans.FAMILY,
    )
}

SUPPORTED = tuple(FAMILIES)
