"""The paper's tables and figures on real data: tasks, plans, the protocol, and what follows it."""
