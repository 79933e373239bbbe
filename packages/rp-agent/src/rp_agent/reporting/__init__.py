"""Messages between agent and coordinator: tasks come in (`intake`), states and results go out (`reporter`).

`reporter` resends results after the connection was lost; they wait in `result_spool` until then. `coordinator_loss`
ends an agent whose coordinator does not come back.
"""
