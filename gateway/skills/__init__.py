"""Skills: folders with a SKILL.md that teach the agent something (https://agentskills.io)."""

from gateway.skills.index import Skill, Skills, Snapshot
from gateway.skills.roots import open_skills, roots_of
from gateway.skills.scan import Root

__all__ = ["Root", "Skill", "Skills", "Snapshot", "open_skills", "roots_of"]
