// The queues of TRANSPORT=storagequeue: one for each subscriber, and one for what it could not take.
param accountName string
param principalId string

@description('The app\'s own subscriptions.')
param ownQueues string[]

@description('Those of other services: [{ name, principalId }].')
param otherQueues array

var queueDataContributor = '974c5e8b-45b9-4653-ba55-5f855dd0fb88'
var names = concat(ownQueues, map(otherQueues, each => each.name))

resource account 'Microsoft.Storage/storageAccounts@2024-01-01' existing = {
  name: accountName
}

resource queueService 'Microsoft.Storage/storageAccounts/queueServices@2024-01-01' = {
  parent: account
  name: 'default'
}

resource queues 'Microsoft.Storage/storageAccounts/queueServices/queues@2024-01-01' = [for name in names: {
  parent: queueService
  name: name
}]

resource poisonQueues 'Microsoft.Storage/storageAccounts/queueServices/queues@2024-01-01' = [for name in names: {
  parent: queueService
  name: '${name}-poison'
}]

// On the account: the app sends to all queues, receives from its own, and looks how full they are.
resource app 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(account.id, principalId, queueDataContributor)
  scope: account
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', queueDataContributor)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

resource others 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for index in range(0, length(otherQueues)): {
  name: guid(account.id, otherQueues[index].name, otherQueues[index].principalId, queueDataContributor)
  scope: queues[length(ownQueues) + index]
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', queueDataContributor)
    principalId: otherQueues[index].principalId
    principalType: 'ServicePrincipal'
  }
}]

resource othersPoison 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for index in range(0, length(otherQueues)): {
  name: guid(account.id, otherQueues[index].name, otherQueues[index].principalId, queueDataContributor, 'poison')
  scope: poisonQueues[length(ownQueues) + index]
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', queueDataContributor)
    principalId: otherQueues[index].principalId
    principalType: 'ServicePrincipal'
  }
}]
