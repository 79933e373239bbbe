"""Events of the pilot's bootstrapper, in the order in which it records them.

The model marks only one event of a pair as conditional in three places (setup of the tunnel, setup of the virtual
environment, its second activation); here both have the mark. It also lists `ve_update_start` twice, the second time as
the end of the update: here, that is `ve_update_stop`.
"""

from __future__ import annotations

from rp_profiling.catalogue.model import IN_USE, PartialOrder, Recorder, opt, seq

_boot = Recorder('bootstrap_0', 'pilot', ('bootstrap_0.prof',))

EVENTS = (
    _boot('bootstrap_0_start', 'the bootstrapper starts'),
    _boot('tunnel_setup_start', 'a tunnel to the outside is being set up', condition='CFG-R'),
    _boot('tunnel_setup_stop', 'the tunnel to the outside is set up', condition='CFG-R'),
    _boot('ve_setup_start', "the agent's virtual environment is being prepared", condition='CFG-R'),
    _boot('ve_create_start', 'the virtual environment is being made', condition='CFG-R'),
    _boot('ve_activate_start', 'the new virtual environment is being activated', condition='CFG-R'),
    _boot('ve_activate_stop', 'the new virtual environment is active', condition='CFG-R'),
    _boot('ve_update_start', 'packages in the virtual environment are being updated', condition='CFG-R'),
    _boot('ve_update_stop', 'packages in the virtual environment have been updated', condition='CFG-R'),
    _boot('ve_create_stop', 'the virtual environment has been made', condition='CFG-R'),
    _boot('rp_install_start', "the pilot system's own packages are being installed", condition='CFG-R'),
    _boot('rp_install_stop', "the pilot system's own packages are installed", condition='CFG-R'),
    _boot('ve_setup_stop', "the agent's virtual environment is prepared", condition='CFG-R'),
    _boot('ve_activate_start', 'the prepared virtual environment is being activated', condition='CFG-R'),
    _boot('ve_activate_stop', 'the prepared virtual environment is active', condition='CFG-R'),
    _boot('bootstrap_0_ok', 'the agent has been started', optional=True, origin=IN_USE),
    *(
        _boot(f'{name}_{end}', f'{what} {verb}', condition='CFG-R', origin=IN_USE, unrecorded=unrecorded)
        for name, what, unrecorded in (
            ('pre_bootstrap_0', 'running commands before the bootstrap', ''),
            ('pre_bootstrap_2', 'running commands before the agent starts',
             'the shell that becomes the agent runs the commands'),
            ('untar', 'unpacking the files of the pilot', ''),
            ('gtod', 'making the clock helper', 'the agent writes the helper, a text'),
        )
        for end, verb in (('start', 'begins'), ('stop', 'is over'))
    ),
    _boot('killme', 'the bootstrapper is asked to end the pilot', condition='RUNTIME', origin=IN_USE),
    _boot('sigterm', 'the agent is sent SIGTERM', condition='RUNTIME', origin=IN_USE),
    _boot('sigkill', 'the agent is sent SIGKILL', condition='RUNTIME', origin=IN_USE,
          unrecorded='the bootstrapper gives the agent its time; the batch system kills both'),
    _boot('agent_gone', 'the agent has ended', condition='RUNTIME', origin=IN_USE),
    _boot('agent_final', 'the final state of the agent is known', condition='RUNTIME', origin=IN_USE,
          unrecorded='the agent itself reports its final state to the client'),
    *(_boot(f'cleanup_{end}', f'the pilot sandbox {verb} removed',
            unrecorded='the sandbox is removed together with this profile')
      for end, verb in (('start', 'is being'), ('stop', 'has been'))),
    _boot('bootstrap_0_stop', 'the bootstrapper ends'),
)

_ACTIVATE = opt('ve_activate_start', 've_activate_stop')

ORDERS = (
    PartialOrder(
        'bootstrap_0',
        'pilot',
        seq(
            'bootstrap_0_start',
            opt('tunnel_setup_start', 'tunnel_setup_stop'),
            opt(
                've_setup_start',
                opt('ve_create_start', _ACTIVATE, opt('ve_update_start', 've_update_stop'), 've_create_stop'),
                opt('rp_install_start', 'rp_install_stop'),
                've_setup_stop',
            ),
            _ACTIVATE,
            opt('bootstrap_0_ok'),
            opt('cleanup_start', 'cleanup_stop'),
            'bootstrap_0_stop',
        ),
    ),
)
