"""Messages between agent and coordinator: takes tasks (`task_intake`), and reports states and results (`reporter`).

After a loss of the connection, `reporter` sends the results that wait in `result_spool`. `coordinator_loss` ends an
agent whose coordinator does not return.
"""
