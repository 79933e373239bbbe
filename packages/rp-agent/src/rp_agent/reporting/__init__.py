"""Messages of the agent to its coordinator: reports states and results of tasks (`reporter`) and the pilot's state.

`coordinator_link` joins them, and ends an agent whose coordinator does not return. After a loss of the connection,
`reporter` sends the results that wait in `result_spool`.
"""
