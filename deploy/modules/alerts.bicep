// Whoever runs it is told: each alert names the section of docs/operate/README.md that says what to do. Every query
// gives a row only when something is wrong, also when it is wrong that nothing came. tests/deploy holds the names in
// the queries against what the app emits.
param resourceToken string
param location string
param tags object
param workspaceId string
param insightsId string
param cosmosId string

@description('Empty: there is no Service Bus.')
param serviceBusId string

@description('The topic, or the queue in its place.')
param topicName string

@description('Empty: the alerts are made, and nobody gets a mail.')
param email string

@description('0: no budget.')
param monthlyBudget int
param budgetStart string

@description('The folder of the documentation, with a slash at its end.')
param docsUrl string

param oldestWaitingSeconds int
param ttlUsedPercent int
param behindMinutes int
param parkedContacts int
param setAsideMessages int
param deadlineSeconds int

@description('Whether something can be due: its alert costs as much as another.')
param deadlines bool

param noReportMinutes int
param failedRequests int
param deadLetters int
param topicBytes int
param unreadMessages int
param throttledRequests int

var page = '${docsUrl}docs/operate/README.md'

// 0 critical, 1 error, 2 warning, 3 informational. "window": what the query looks at, in minutes.
var logAlerts = [
  {
    name: 'oldest-waiting'
    title: 'Events wait'
    severity: 2
    window: 10
    threshold: oldestWaitingSeconds
    query: loadTextContent('../alerts/oldest-waiting.kql')
  }
  {
    name: 'ttl-used'
    title: 'Events grow old: they are lost at 100 %'
    severity: 1
    window: 10
    threshold: ttlUsedPercent
    query: loadTextContent('../alerts/ttl-used.kql')
  }
  {
    name: 'falling-behind'
    title: 'More events are stored than forwarded'
    severity: 2
    window: behindMinutes
    threshold: behindMinutes
    query: loadTextContent('../alerts/falling-behind.kql')
  }
  {
    name: 'parked'
    title: 'Contacts are parked'
    severity: 2
    window: 10
    threshold: parkedContacts
    query: loadTextContent('../alerts/parked.kql')
  }
  {
    name: 'set-aside'
    title: 'Messages are set aside'
    severity: 2
    window: 10
    threshold: setAsideMessages
    query: loadTextContent('../alerts/set-aside.kql')
  }
  {
    name: 'deadlines'
    title: 'Deadlines are not met'
    severity: 2
    window: 10
    threshold: deadlineSeconds
    query: loadTextContent('../alerts/deadlines.kql')
  }
  {
    name: 'no-report'
    title: 'Nobody watches the relay'
    severity: 1
    window: noReportMinutes
    threshold: noReportMinutes
    query: loadTextContent('../alerts/no-report.kql')
  }
  {
    name: 'failed-requests'
    title: 'Requests fail'
    severity: 2
    window: 15
    threshold: failedRequests
    query: loadTextContent('../alerts/failed-requests.kql')
  }
]

// Azure Monitor's own metrics: the app has no right to read them, and needs none.
var metricAlerts = [
  {
    name: 'dead-letters'
    title: 'Dead letters'
    severity: 2
    scope: serviceBusId
    namespace: 'Microsoft.ServiceBus/namespaces'
    metric: 'DeadletteredMessages'
    aggregation: 'Maximum'
    window: 'PT5M'
    threshold: deadLetters
    dimensions: [{ name: 'EntityName', operator: 'Include', values: [topicName] }]
  }
  {
    name: 'topic-size'
    title: 'The topic fills up'
    severity: 1
    scope: serviceBusId
    namespace: 'Microsoft.ServiceBus/namespaces'
    metric: 'Size'
    aggregation: 'Maximum'
    window: 'PT5M'
    threshold: topicBytes
    dimensions: [{ name: 'EntityName', operator: 'Include', values: [topicName] }]
  }
  {
    name: 'unread'
    title: 'Messages wait, and nobody may read them'
    severity: 2
    scope: serviceBusId
    namespace: 'Microsoft.ServiceBus/namespaces'
    metric: 'ActiveMessages'
    aggregation: 'Minimum'
    window: 'PT1H'
    threshold: unreadMessages
    dimensions: [{ name: 'EntityName', operator: 'Include', values: [topicName] }]
  }
  {
    name: 'throttled-servicebus'
    title: 'Service Bus throttles'
    severity: 3
    scope: serviceBusId
    namespace: 'Microsoft.ServiceBus/namespaces'
    metric: 'ThrottledRequests'
    aggregation: 'Total'
    window: 'PT5M'
    threshold: throttledRequests
    dimensions: []
  }
  {
    name: 'throttled-cosmos'
    title: 'Cosmos DB throttles'
    severity: 3
    scope: cosmosId
    namespace: 'Microsoft.DocumentDB/databaseAccounts'
    metric: 'TotalRequests'
    aggregation: 'Count'
    window: 'PT5M'
    threshold: throttledRequests
    dimensions: [{ name: 'StatusCode', operator: 'Include', values: ['429'] }]
  }
]

resource operators 'Microsoft.Insights/actionGroups@2023-01-01' = if (!empty(email)) {
  name: 'ag-${resourceToken}'
  location: 'global'
  tags: tags
  properties: {
    groupShortName: 'outbox'
    enabled: true
    emailReceivers: [
      {
        name: 'operators'
        emailAddress: email
        useCommonAlertSchema: true
      }
    ]
  }
}

// The tables are there only when something has arrived: so the queries are not run when the rules are made.
resource logRules 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = [for alert in logAlerts: if (deadlines || alert.name != 'deadlines') {
  name: 'alert-${alert.name}-${resourceToken}'
  location: location
  tags: tags
  kind: 'LogAlert'
  properties: {
    displayName: alert.title
    description: 'What to do: ${page}#${alert.name}'
    severity: alert.severity
    enabled: true
    scopes: [workspaceId]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT${alert.window}M'
    criteria: {
      allOf: [
        {
          query: 'let threshold = ${alert.threshold};\n${alert.query}'
          timeAggregation: 'Count'
          operator: 'GreaterThan'
          threshold: 0
          failingPeriods: {
            numberOfEvaluationPeriods: 1
            minFailingPeriodsToAlert: 1
          }
        }
      ]
    }
    autoMitigate: true
    skipQueryValidation: true
    actions: {
      actionGroups: empty(email) ? [] : [operators.id]
      customProperties: {
        runbook: '${page}#${alert.name}'
      }
    }
  }
}]

resource metricRules 'Microsoft.Insights/metricAlerts@2018-03-01' = [for alert in metricAlerts: if (!empty(alert.scope)) {
  name: 'alert-${alert.name}-${resourceToken}'
  location: 'global'
  tags: tags
  properties: {
    description: '${alert.title}. What to do: ${page}#${alert.name}'
    severity: alert.severity
    enabled: true
    scopes: [alert.scope]
    evaluationFrequency: 'PT5M'
    windowSize: alert.window
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          criterionType: 'StaticThresholdCriterion'
          name: alert.name
          metricNamespace: alert.namespace
          metricName: alert.metric
          timeAggregation: alert.aggregation
          operator: 'GreaterThan'
          threshold: alert.threshold
          dimensions: alert.dimensions
        }
      ]
    }
    autoMitigate: true
    actions: empty(email) ? [] : [{ actionGroupId: operators.id, webHookProperties: { runbook: '${page}#${alert.name}' } }]
  }
}]

resource budget 'Microsoft.Consumption/budgets@2023-11-01' = if (monthlyBudget > 0) {
  name: 'budget-${resourceToken}'
  properties: {
    category: 'Cost'
    amount: monthlyBudget
    timeGrain: 'Monthly'
    timePeriod: {
      startDate: budgetStart
    }
    notifications: {
      actual: {
        enabled: true
        operator: 'GreaterThan'
        threshold: 100
        thresholdType: 'Actual'
        contactEmails: empty(email) ? [] : [email]
        contactRoles: ['Owner']
      }
      forecast: {
        enabled: true
        operator: 'GreaterThan'
        threshold: 100
        thresholdType: 'Forecasted'
        contactEmails: empty(email) ? [] : [email]
        contactRoles: ['Owner']
      }
    }
  }
}

// The same figures over time. The workbook's file names resources by placeholders.
resource workbook 'Microsoft.Insights/workbooks@2023-06-01' = {
  name: guid(resourceGroup().id, resourceToken, 'workbook')
  location: location
  tags: tags
  kind: 'shared'
  properties: {
    displayName: 'Outbox'
    category: 'workbook'
    sourceId: insightsId
    version: 'Notebook/1.0'
    serializedData: replace(
      replace(replace(replace(loadTextContent('../workbook.json'), '<workspace>', workspaceId), '<cosmos>', cosmosId), '<servicebus>', serviceBusId),
      '<docs>',
      page
    )
  }
}
