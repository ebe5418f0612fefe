"""What the integrations with web frameworks have in common; not for anybody else."""
