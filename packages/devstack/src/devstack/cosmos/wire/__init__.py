"""A request comes in whole, signed and routed, or is refused in the service's own form; nothing here touches data."""
