"""The names of `radical.pilot.resource_config` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_api.platforms.definition import AccessSchema as AccessSchema
from rp_api.platforms.definition import RaptorConfig as RaptorConfig
from rp_api.platforms.definition import ResourceConfig as ResourceConfig
from rp_api.resources import RO as RO
from rp_api.resources import Node as Node
from rp_api.resources import NodeList as NodeList
from rp_api.resources import NumaDomain as NumaDomain
from rp_api.resources import NumaDomainMap as NumaDomainMap
from rp_api.resources import NumaNode as NumaNode
from rp_api.resources import NumaNodeList as NumaNodeList
from rp_api.resources import RankRequirements as RankRequirements
from rp_api.resources import ResourceOccupation as ResourceOccupation
from rp_api.resources import Slot as Slot
