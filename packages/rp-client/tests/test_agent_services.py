"""The services in a pilot's description, as the agent gets them."""

from __future__ import annotations

from typing import Any

import pytest

from rp_api import constants as c
from rp_api.description.pilot import PilotDescription
from rp_api.errors import DescriptionError
from rp_client.flow.submission import agent_services


def services(*wanted: dict[str, Any]) -> list[dict[str, Any]]:
    description = PilotDescription({'uid': 'p', 'resource': 'local.localhost', 'nodes': 1, 'services': list(wanted)})
    description.verify()
    return agent_services(description)


def test_services_have_uids_and_normal_settings() -> None:
    assert services({'executable': 'a', 'service': {'port': '0'}}, {'executable': 'b', 'uid': 'mine'}) == [
        {'executable': 'a', 'service': {'port': 0}, 'mode': c.AGENT_SERVICE, 'uid': 'p.service.0000'},
        {'executable': 'b', 'mode': c.AGENT_SERVICE, 'uid': 'mine'}]


@pytest.mark.parametrize(('wanted', 'words'), [
    ([{'executable': 'a', 'uid': 'x'}] * 2, "2 services with the uid 'x'"),
    ([{'executable': 'a', 'input_staging': ['f']}], "'f' by the client.*stage_in"),
    ([{'executable': 'a', 'environment': {'x': object()}}], 'environment')])
def test_services_are_refused(wanted: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(DescriptionError, match=words):
        services(*wanted)
