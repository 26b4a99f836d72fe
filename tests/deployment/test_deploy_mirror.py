"""A deployment whose bytes come from a mirror: the host sends manifest and signature alone."""

from __future__ import annotations

import pytest

from edgekit.bundles.push import push
from edgekit.bundles.sign import allowed_signers_line, ensure_key, sign
from edgekit.deployment.client import BoardClient
from edgekit.deployment.install import install
from edgekit.deployment.ssh import connect
from edgekit.errors import EdgekitError
from tests.boards.bundles import hand_made
from tests.edgekit_device.source_servers import Handler, serving


@pytest.mark.boards
def test_the_board_fetches_what_it_lacks(tmp_path, boards):
    from edgekit.bundles.files import build_zipapp

    key = ensure_key(tmp_path / "key" / "id")
    bundle = hand_made(columns=4096)
    bundle = bundle.signed(sign(bundle.manifest_bytes, key))
    push(bundle, str(tmp_path / "mirror"))
    server = boards()
    build_zipapp(tmp_path / "loader.pyz")
    with serving(Handler, folder=tmp_path / "mirror") as mirror:
        transport = connect(server.board)
        try:
            client = BoardClient(server.board, transport, tmp_path / "loader.pyz")
            client.trust([allowed_signers_line(key.with_name("id.pub"), "tests")])
            client.ensure_loader()
            policy = {"measure_s": 0.0}
            with pytest.raises(EdgekitError) as refused:
                install(bundle, client, source=mirror.url + "elsewhere/", policy=policy)
            assert refused.value.code == "source.not-found"
            mirror.requests.clear()
            release = install(bundle, client, source=mirror.url, policy=policy)
        finally:
            transport.close()
    assert set(mirror.blobs_requested()) == {*bundle.blobs, *bundle.weights}
    assert release.digest == bundle.digest
    assert release.bytes_sent < bundle.payload_bytes / 4
