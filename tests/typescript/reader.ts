// A reader of another team, who has the types alone.
import type { ApplicationProperties, ContactCreatedEvent, Event } from "./events/index.js";

function cityOf(created: ContactCreatedEvent): string {
  return created.contact.company?.city ?? "nowhere";
}

export function told(event: Event, properties: ApplicationProperties): string {
  const place: number = event.sequence ?? properties.sequence ?? 0;
  switch (event.action) {
    case "ContactCreatedEvent":
      return `${place}: ${event.contact.name.firstName} lives in ${cityOf(event)}`;
    case "ContactNameUpdatedEvent":
      return `${place}: ${event.name.lastName}`;
    case "ContactEmailUpdatedEvent":
      return event.email;
    case "ContactDescriptionUpdatedEvent":
      return event.description ?? "";
    case "ContactCompanyUpdatedEvent":
      return event.company?.companyName ?? "";
    case "ContactDeletedEvent":
      return event.deletedAt;
    case "EventDiscarded":
      return event.discardedEventId ?? "";
    default: {
      const none: never = event; // a new event is an error here, until the reader knows it
      return none;
    }
  }
}
