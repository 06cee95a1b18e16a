"""One path of the namespace is one entity: its description, what does its work, and the duplicates that it knows."""

from dataclasses import dataclass

from devstack.servicebus.broker.description import Description
from devstack.servicebus.broker.duplicates import DuplicateWindow
from devstack.servicebus.broker.queue import Queue
from devstack.servicebus.broker.topic import Topic


@dataclass(eq=False, slots=True)
class Entity:
    """``node`` does the work; ``duplicates`` is there when the entity detects them."""

    id: int
    description: Description
    node: Queue | Topic
    duplicates: DuplicateWindow | None

    @property
    def queue(self) -> Queue:
        """Where its messages and deadlines are; of a topic, the scheduled ones."""
        return self.node.backlog if isinstance(self.node, Topic) else self.node
