from ipaddress import ip_address, ip_network

import pytest

from service.hooks.addresses import permits

NOT_OF_THE_INTERNET = [
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.2.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fc00::1",
    "fec0::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "2001:db8::1",
    "::127.0.0.1",
    "::169.254.169.254",
    "::8.8.8.8",
    "::ffff:0:127.0.0.1",
    "64:ff9b:1::7f00:1",
    "64:ff9b:1::808:808",
    "2002:a9fe:a9fe::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "100::1",
    "5f00::1",
    "4000::1",
]


@pytest.mark.parametrize("address", NOT_OF_THE_INTERNET)
def test_callbacks_do_not_reach_inside(address: str) -> None:
    assert not permits(ip_address(address), ())


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
)
def test_callbacks_reach_the_internet(address: str) -> None:
    assert permits(ip_address(address), ())


def test_an_allowed_network_is_reached_and_no_other() -> None:
    allowed = (ip_network("10.1.0.0/16"),)
    assert permits(ip_address("10.1.2.3"), allowed)
    assert permits(ip_address("::ffff:10.1.2.3"), allowed)
    assert not permits(ip_address("10.2.2.3"), allowed)
