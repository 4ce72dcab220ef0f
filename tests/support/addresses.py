"""Addresses that are refused, in all spellings, and their public neighbours.

The lists of Svix (`is_allowed_test`) and Hook0 (`forbids_*`), and what they leave out: the ends of each
network, what carries an IPv4 address inside, clouds' own services, and URLs that only some parsers read as an
address.
"""

_NOT_PUBLIC = """
    0.0.0.0 0.1.2.3 10.0.0.0 10.255.255.255 100.64.0.0 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1
    127.254.254.254 168.63.129.16 169.254.1.1 169.254.169.254 172.16.0.0 172.16.5.4 172.31.255.255 192.0.0.0
    192.0.0.192 192.0.0.255 192.0.2.255 192.88.99.1 192.168.0.0 192.168.1.1 192.168.255.255 198.18.0.0
    198.19.255.255 198.51.100.65 203.0.113.6 224.0.0.1 239.255.255.250 240.0.0.0 240.240.240.240
    255.255.255.255
    :: ::1 1::1 ::2 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::ffff:8.8.8.8 ::7f00:1
    ::ffff:0:7f00:1 ::ffff:0:8.8.8.8 ::5efe:7f00:1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::10.0.0.1
    64:ff9b::168.63.129.16 64:ff9b:0:0:1::8.8.8.8 64:ff9b:1::1 64:ff9b:1::8.8.8.8 100::1 100:0:0:1::1 2001::1
    2001:0:7f00:1::1 2001:2::1 2001:10::1 2001:20::1 2001:1ff:ffff::1 2001:db8::1 2001:db8:ffff::1
    2001:4860::5efe:c0a8:1 2001:4860::200:5efe:a9fe:a9fe 2002:7f00:1::1 2002:808:808::1
    2606:4700:0:1:0:5efe:7f00:1 2606:4700:0:1:200:5efe:a00:1 3fff::1 3fff:fff:ffff::1 4000::1 5f00::1
    8000::1 fc00::1 fd00:ec2::254 fdff:ffff::1 fe80::1 fe80::1%eth0 febf:ffff::1 fec0::1 feff::1
    ff02::1 ff0e::1
"""

_PUBLIC = """
    1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 168.63.129.15
    169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 191.255.255.255 192.0.1.0 192.0.3.0 192.88.98.255
    192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255 2001:200::1 2001:4860:4860::8888
    2003::1 2606:4700:4700::1111 2606:4700::5efe:808:808 2606:4700::200:5efe:808:808
    2606:4700::100:5efe:a00:1 2606:4700::5eff:a00:1 2606:4700:0:5efe:a00:1:: 2a00::1 3ffe::1 64:ff9b::101:101
"""

_LOOPBACK_SPELLINGS = """
    2130706433 0x7f000001 0x7f.0.0.1 0x7F.1 127.0.0.0x1 017700000001 0177.0.0.1 127.1 127.0.1 127.0.0.1.
    127.0.0.01 127.000.000.001 127。0。0。1 １２７.0.0.1 １２７.１ ①②⑦.⓪.⓪.① 127.0.0.1%00
    127.0.0.1%2f@example.com example.com@127.0.0.1 user:word@127.0.0.1 0 0x0 0.0 [::1%25lo] [::1%lo]
    [127.0.0.1] [::127.0.0.1] [::ffff:7f00:1] [0:0:0:0:0:ffff:127.0.0.1] [0000::0001] localhost localhost.
    LOCALHOST ⓛocalhost
"""

NOT_PUBLIC = _NOT_PUBLIC.split()
PUBLIC = _PUBLIC.split()
LOOPBACK_SPELLINGS = _LOOPBACK_SPELLINGS.split()
"""Spellings of this machine in a URL, to one parser or resolver or another."""


def url_host(address: str) -> str:
    """An address as it stands in a URL."""
    return f"[{address}]" if ":" in address else address
