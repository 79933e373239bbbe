"""Simulations of workloads on a platform, without an allocation.

    from rp_client.simulation import Platform, Workload, load_model, simulate

    result = simulate(Platform.named('ornl.summit', nodes=1024), Workload.of({'ranks': 84, 'duration': 600}, 1000))
    print(result)

See docs/guides/simulator.md.
"""

from rp_api.simulation.model import Cost, Model, list_models, load_model, make_model
from rp_client.simulation.platform import Platform
from rp_client.simulation.result import Result
from rp_client.simulation.simulate import simulate
from rp_client.simulation.workload import Workload

__all__ = ['Cost', 'Model', 'Platform', 'Result', 'Workload', 'list_models', 'load_model', 'make_model', 'simulate']
