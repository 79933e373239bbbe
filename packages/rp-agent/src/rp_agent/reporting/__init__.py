"""Messages between agent and coordinator: takes tasks (`task_intake`), and reports states and results (`reporter`).

`coordinator_link` joins them, and ends an agent whose coordinator does not return. After a loss of the connection,
`reporter` sends the results that wait in `result_spool`.
"""
