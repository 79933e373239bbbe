class Policy:
    class Placement:
        HOST_NAME = -3

    def __init__(self, placement: int, host_name: str) -> None:
        self.host_name = host_name
