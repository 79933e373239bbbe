"""The check of a platform definition on the platform itself, without a job."""
