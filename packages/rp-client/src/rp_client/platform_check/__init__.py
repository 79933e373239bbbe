"""Testing a platform definition on the spot: what of it is true where the platform is, without a job."""
