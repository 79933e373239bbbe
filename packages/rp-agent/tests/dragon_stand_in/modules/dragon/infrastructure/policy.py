class Policy:
    class Placement:
        HOST_NAME = -3

    def __init__(self, placement, host_name):
        self.host_name = host_name
